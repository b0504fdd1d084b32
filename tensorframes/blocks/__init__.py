"""The block converter: Arrow arrays ↔ blocks of NumPy arrays, which TensorFlow shares.

Knows Arrow and NumPy; no TensorFlow, no frame library. The one law: decode and encode are inverses, and no value changes on the way.
"""
