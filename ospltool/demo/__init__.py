"""`ospltool demo`: three nodes, five acts, on real Cyclone DDS between real processes."""
