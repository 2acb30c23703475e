"""Figures, tables and the self-contained page that tell a stranger how a run went."""
