"""Every question that is asked in several ways; a new way is a line of its table."""

from __future__ import annotations

from tests.agreement.plans import PLANS
from tests.agreement.runtimes import RUNTIMES
from tests.agreement.searches import SEARCHES
from tests.agreement.statements import STATEMENTS
from tests.agreement.symmetries import SYMMETRIES
from tests.agreement.what_ifs import WHAT_IFS

QUESTIONS = (*SEARCHES, *STATEMENTS, *SYMMETRIES, *WHAT_IFS, *RUNTIMES, *PLANS)
