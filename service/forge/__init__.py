"""The forge: pull requests, statuses and reviews on GitHub and GitLab, made by the service on behalf of agents."""
