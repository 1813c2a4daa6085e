"""What is scheduled: instances, the integer problem they lower to, schedules and results.

Depends on numpy and pydantic only; knows no solver and no screen.
"""
