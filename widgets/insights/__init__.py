"""The widgets of the Insights tab."""
