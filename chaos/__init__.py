"""Real nodes, writers and readers under faults, and a checker that shares no code with the product.

`python -m chaos` runs rounds of seeded faults; `python -m chaos --case NAME` one named scenario. Everything
happens in a capsule of namespaces that the kernel removes with its first process: no traffic leaves it.
"""
