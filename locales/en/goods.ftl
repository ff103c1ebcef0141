# The goods of the demo catalogue, by sku.
goods-brass-padlock = Brass padlock, two keys
goods-brass-padlock-about = Solid brass, 50 mm. Two keys, no master key.
goods-combination-lock = Combination lock, four wheels
goods-combination-lock-about = Four wheels, ten thousand codes. Yours is one of them.
goods-deadbolt = Deadbolt, single cylinder
goods-deadbolt-about = Bolt of hardened steel, 25 mm throw, key on one side.
goods-bike-chain = Bicycle chain, 110 cm
goods-bike-chain-about = Square links in a nylon sleeve, 110 cm, 1.9 kg.
goods-key-ring = Key ring, hand-forged
goods-key-ring-about = Forged by hand, no two alike. Holds thirty keys.
goods-strongbox = Strongbox, fire-proof
goods-strongbox-about = Survives 60 minutes at 900 °C. Two people should lift it.
goods-lock-picks = Lock picks, set of nine
goods-lock-picks-about = Nine picks and a practice lock. For your own locks only.
goods-last-lantern = The last lantern
goods-last-lantern-about = There is only one. Somebody will be second.
