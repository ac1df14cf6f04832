"""OpenSplice's client-durability protocol: topics, types, QoS, messages, and what we add to them.

Nodes serve it (`engine.clients`), applications use it (`ospltool.client`).
"""
