# The frame of every page.
skip-to-content = 跳到正文
nav-label = 页面
nav-race = 抢购演示
nav-shop = 商店
nav-lab = 实验室
nav-orders = 订单
nav-account = 账户
nav-admin = 管理
nav-hood = 内部状态
nav-audit = 审计
nav-locks = 锁
nav-jobs = 任务
nav-basket = 购物车
nav-sign-in = 登录
nav-sign-out = 退出
footer-api = 接口文档
footer-language = 语言
