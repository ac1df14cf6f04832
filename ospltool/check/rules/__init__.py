"""The rules, one function each; a module holds one family. `ospltool.check.registry` collects them."""
