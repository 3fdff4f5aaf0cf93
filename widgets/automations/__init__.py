"""The widgets of the Automations tab: rules with their results, pending approvals, and the form of a rule."""
