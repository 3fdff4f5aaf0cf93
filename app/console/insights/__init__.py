"""The Insights tab: figures as charts, tables and files."""
