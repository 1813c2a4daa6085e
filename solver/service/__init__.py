"""The service: questions and answers over HTTP, jobs in watched processes, and a page to try it."""
