"""Requests to a server by REST and gRPC: limits, checks of the answers, certificates."""
