# 示例商品，按 sku 排列。
goods-brass-padlock = 黄铜挂锁，附两把钥匙
goods-combination-lock = 四位转轮密码锁
goods-deadbolt = 单锁芯门闩锁
goods-bike-chain = 自行车链锁，110 厘米
goods-key-ring = 手工锻造钥匙圈
goods-strongbox = 防火保险箱
goods-lock-picks = 开锁工具，九件套
goods-last-lantern = 最后一盏提灯
