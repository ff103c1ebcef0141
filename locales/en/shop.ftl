shop-left = { $units } left
