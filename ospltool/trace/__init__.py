"""Traces and logs of OpenSplice and ospltool: read, merge, filter, follow, explain."""
