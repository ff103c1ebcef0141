# The goods of the demo catalogue, by sku.
goods-brass-padlock = Brass padlock, two keys
goods-combination-lock = Combination lock, four wheels
goods-deadbolt = Deadbolt, single cylinder
goods-bike-chain = Bicycle chain, 110 cm
goods-key-ring = Key ring, hand-forged
goods-strongbox = Strongbox, fire-proof
goods-lock-picks = Lock picks, set of nine
goods-last-lantern = The last lantern
