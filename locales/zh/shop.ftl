shop-left = 剩 { $units } 件
