"""OpenSplice's client-durability protocol: topics, types, QoS, messages, and ospltool's additions.

Nodes serve it (`engine.client_service`), applications use it (`ospltool.client`).
"""
