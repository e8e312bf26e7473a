"""torchvision's wheel from PyPI has its C part built for CUDA.

Defines `nms`, of whose schema its Python part asks, so that it imports beside a torch for the CPU.
"""

import sys
from importlib.abc import MetaPathFinder


class _BeforeTorchvision(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            # Kept: what is defined goes with the library.
            self.library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                self.library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            sys.modules["sitecustomize"].kept = self
        return


sys.meta_path.insert(0, _BeforeTorchvision())
