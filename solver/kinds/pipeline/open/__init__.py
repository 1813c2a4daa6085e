"""Pipelines that leave several things open beside orders: one search and one proof of them all."""
