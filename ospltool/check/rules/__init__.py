"""The rules, in a module for each family; `ospltool.check.rule_book` has all of them."""
