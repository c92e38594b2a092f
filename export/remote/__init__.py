"""Requests to a server, by REST and gRPC: what is sent, what is answered, certificates."""
