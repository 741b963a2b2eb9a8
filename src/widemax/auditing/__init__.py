"""Auditing: how far a shortcut is from the exact softmax, on the user's own data."""

from widemax.auditing.measuring.gradient import audit
from widemax.auditing.measuring.report import AuditFigures, AuditReport, GradientFigures

__all__ = ["AuditFigures", "AuditReport", "GradientFigures", "audit"]
