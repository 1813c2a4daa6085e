"""What people see: numbers, tables, terminal Gantt charts and live progress."""
