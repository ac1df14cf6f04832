"""The durability protocol, sans-IO: standard library only, no clock, socket, thread, file or DDS."""
