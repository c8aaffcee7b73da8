"""Networks that estimate a body's state from images in any light and material (RISP: Ma, Du et al., ICLR 2022)."""
