"""OMG IDL 4.2 to DDS types, and back."""
