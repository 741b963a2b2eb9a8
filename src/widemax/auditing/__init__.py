"""Auditing: how far a shortcut is from the exact softmax, on the user's own data."""

from widemax.auditing.gradient import audit
from widemax.auditing.report import AuditReport

__all__ = ["AuditReport", "audit"]
