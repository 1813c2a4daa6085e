"""A page for each heuristic: its rule, its source, a schedule of it beside the best one."""

from __future__ import annotations
