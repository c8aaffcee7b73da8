"""Read and write every file format; values inside are in SI units, converted here."""
