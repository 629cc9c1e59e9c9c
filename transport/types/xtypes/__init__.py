"""XTypes 1.3 type representation (§7.3.4): type identifiers, type objects, type information, and what is assignable."""
