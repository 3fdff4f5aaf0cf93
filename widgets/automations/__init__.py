"""What the Automations tab shows: rules with their last results, what waits for approval, and the form of a rule."""
