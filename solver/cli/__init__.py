"""The command line: thin commands over the library, slow imports only when a command runs."""
