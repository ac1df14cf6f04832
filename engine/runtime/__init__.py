"""One node's wiring of core, data sets, store and trace, with clock, wire and disk passed in."""
