# 示例商品，按 sku 排列。
goods-brass-padlock = 黄铜挂锁，附两把钥匙
goods-brass-padlock-about = 纯黄铜，50 毫米。两把钥匙，没有万能钥匙。
goods-combination-lock = 四位转轮密码锁
goods-combination-lock-about = 四个转轮，一万种密码，你只用一种。
goods-deadbolt = 单锁芯门闩锁
goods-deadbolt-about = 淬火钢锁舌，伸出 25 毫米，单面用钥匙。
goods-bike-chain = 自行车链锁，110 厘米
goods-bike-chain-about = 方形链环，尼龙护套，110 厘米，1.9 公斤。
goods-key-ring = 手工锻造钥匙圈
goods-key-ring-about = 手工锻造，每个都不同，可挂三十把钥匙。
goods-strongbox = 防火保险箱
goods-strongbox-about = 可耐 900 ℃ 高温 60 分钟，需两人搬运。
goods-lock-picks = 开锁工具，九件套
goods-lock-picks-about = 九件工具，附练习锁。只用于自己的锁。
goods-last-lantern = 最后一盏提灯
goods-last-lantern-about = 只有一盏，总有人晚一步。
