"""The verbs: what users call. The one law: a verb's body only connects rooms; it decides nothing itself."""
