import sys
from pathlib import Path

sys.path.append(
    str(Path(__file__).parent)
)  # for the modules that tests share: emulated.py, resnets.py
