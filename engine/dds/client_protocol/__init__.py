"""OpenSplice's client-durability protocol: topics, types, QoS, messages, and what we add to them.

Nodes serve it (`engine.client_service`), applications use it (`ospltool.client`).
"""
