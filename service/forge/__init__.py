"""The forge: pull requests, statuses and reviews on code hosts, made by the service on behalf of agents."""
