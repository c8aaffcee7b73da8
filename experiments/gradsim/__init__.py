"""What the experiments of gradSim (Jatavallabhula, Macklin et al., ICLR 2021) share; each is a `gradsim_*.py` beside.

`pixels`: from a simulated motion to images and their error, one graph in PyTorch. `descent`: first-order methods on
any such graph. `newton`: ours, with intervals. `result_cache`: what is finished. Of control: `controller`, `reach`
(towards one image), `goals` (its tables). `discs`: pendulums as images. Built from the paper's equations.
"""
