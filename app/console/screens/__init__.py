"""The screens: each binds facts to widgets and turns their wishes into calls of the engine."""
