"""Discovery of participants and endpoints: SPDP, SEDP, liveliness and matching (RTPS 2.5 §8.4.13, §8.5)."""
