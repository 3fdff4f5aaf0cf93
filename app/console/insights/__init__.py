"""The Insights room: figures as charts, tables and files."""
