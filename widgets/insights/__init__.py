"""The charts and tables of Insights."""
