"""What is wrong with a system: codes of trouble, signs of it, and the incidents that they make."""
