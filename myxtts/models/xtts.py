"""temporary"""
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import GPT
from myxtts.models.conditioning import Conditioning
class XTTS:
    def __init__(self, config):
        self.config=config
        self.dvae=DVAE(config); self.dvae.build()
        self.gpt=GPT(config); self.conditioning=Conditioning(config)
