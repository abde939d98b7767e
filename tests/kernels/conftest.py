import sys
from pathlib import Path

# For the modules that tests share: emulated.py, resnets.py.
sys.path.append(str(Path(__file__).parent))
