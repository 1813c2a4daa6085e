"""What training runtimes can run: the rules, the orders, and the best schedule within them."""
