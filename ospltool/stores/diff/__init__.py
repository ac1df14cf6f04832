"""How two or more stores differ, instance by instance, and why."""
