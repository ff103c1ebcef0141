# 页面顶部的状态栏。
shop-bar = 商店状态
shop-bar-sound = 商店的 { $items } 种商品 · 账目相符
shop-bar-off = 账目相差 { $units } 件
shop-bar-stale = 商店没有响应 · 账目上次检查于 { $time }
shop-bar-unknown = 暂时无法读取账目
shop-bar-broken = 此商店会超卖：锁策略 { $strategy }
shop-bar-figures = 期初 { $opening } { $direction ->
    [removed] − 报损 { $restocked }
   *[added] + 补货 { $restocked }
} { $sign } 已售或预留 { $sold } + 剩余 { $stock }
shop-bar-replica = 响应的服务器
shop-bar-lock = 商店的锁策略：
shop-bar-lab = 抢购和课程各用自己的锁，它们的商品不计入上面的数字，各有自己的账本。
shop-and-more = 等，另有 { $count } 个

# 商品。
shop-empty = 还没有商品。
shop-more-items = 更多商品
shop-left = 剩 { $units } 件
shop-sold-out = 已售罄
shop-returns = 预留的商品若未付款，{ $when }可能退回。
shop-returns-soon = 一分钟内可能有预留的商品退回。
shop-none-reserved = 已全部售出，没有预留。
shop-return-unknown = 全部库存已售出或被预留。订单到期未付款，预留的库存会退回。
shop-hidden = 此商品已下架。
shop-limit = 每位顾客最多 { $limit } 件。
shop-limit-reached = 你的订单里已有 { $purchased } 件，达到限购数量，不能再买。
shop-buy = 加入购物车
shop-buy-item = 把 { $name }加入购物车
shop-quantity = 数量
shop-quantity-of = { $name } 的数量
shop-quantity-range = 请输入 { $least } 到 { $max } 之间的整数。
shop-quantity-most = 购物车中已有 { $present } 件，每种商品最多 { $max } 件。
shop-quantity-lines = 一个订单最多 { $max } 种商品。
shop-sku = 货号
shop-item-tabs = 商品视图
shop-item-tab = 商品
shop-ledger-tab = 账本
shop-ledger-of = { $name } 的账本
shop-go-to-shop = 去商店

# 无法下单时。
shop-paused = 暂停销售。
shop-paused-why = 数据库目前无法记录订单。购物车会保留，恢复后就能下单。
shop-paused-as-of = 页面内容的读取时间：

# 购物车。
shop-basket-empty = 购物车是空的。
shop-each = 单价 { $price }
shop-was = { $now }，原为 { $was }
shop-line-gone = 商店已没有这种商品，请移除。
shop-line-sold-out = 已售罄，请从购物车移除。
shop-line-few = 只剩 { $units } 件，请减少数量。
shop-line-beyond = { $left ->
    [0] 请从购物车移除。
   *[other] 请将数量减到 { $left } 件。
}
shop-limit-have = 你已有 { $purchased } 件。
shop-change = 更新
shop-remove = 移除
shop-remove-item = 移除 { $name }
shop-total = 合计
shop-balance-now = 账户余额
shop-balance-after = 付款后余额
shop-missing = 还差
shop-order-needs-account = 下单需要账户。购物车会保留。
shop-create-account = 注册账户
shop-not-orderable = 此购物车无法下单，请修改上面标出的商品。
shop-place-order = 提交订单
shop-accept-total = 按 { $total } 下单
shop-go-on = 继续购物
shop-held-for = 库存为你预留 { $time }，下一步付款。
shop-top-up-later = 届时可以充值。

# 订单。
shop-order-title = { $units ->
    [1] { $name }
   *[other] { $units } × { $name }
}{ $more ->
    [0] {""}
   *[other] {" "}等，另有 { $more } 种商品
}
shop-status-pending = 待付款
shop-status-paid = 已付款
shop-status-cancelled = 已取消
shop-status-expired = 超时未付款
shop-status-refunded = 已退款
shop-late = 订单未按时付款
shop-late-detail = 没有扣款。付款截止时间：
shop-hold-over = 付款时间已过，库存即将退回。取消订单可立即退回。
shop-units-returned = 库存已退回。若还有货，可以重新下单。
shop-held = 为你预留
shop-time-left = { $minutes } 分 { $seconds } 秒
shop-pay = 支付 { $total }
shop-top-up-and-pay = 充值 { $missing } 并支付
shop-other-amount = 充值其他金额
shop-pay-short = 余额 { $balance }，还差 { $missing }。
shop-pay-after = 余额 { $balance }，付款后剩 { $after }。
shop-cancel = 取消订单
shop-cancel-question = 要取消整个订单吗？商品将退回商店，此操作无法撤销。
shop-cancel-yes = 确认取消订单
shop-returned-by-shop = 此操作由商店执行。
shop-thanks = 谢谢惠顾。余额 { $balance }。
shop-cancelled = 订单已取消，库存已退回，没有扣款。
shop-refunded = 已退款 { $total }，余额 { $balance }，库存已退回。
shop-refund = 退款 { $total }
shop-refund-question = 要为整个订单退款吗？{ $total } 将退回付款账户，商品退回商店，此操作无法撤销。
shop-refund-yes = 确认退款 { $total }
shop-ordered = 订单内容
shop-stock-changes = 库存变动
shop-money-changes = 余额变动
shop-no-money-changes = 无。余额 { $balance }。
shop-ordered-at = 下单时间

# 订单列表。
shop-no-orders = 你还没有订单。
shop-pay-within = 剩余付款时间 { $time }
shop-older-orders = 更早的订单
shop-lab-orders = 有 { $orders } 个实验室商品的订单未显示。
shop-lab-orders-show = 显示
shop-lab-orders-with = 其中 { $orders } 个是实验室商品的订单。
shop-lab-orders-hide = 只显示商店的订单

# 账户。
shop-balance = 账户余额
shop-top-up-amount = 金额
shop-top-up = 充值
shop-amount-unclear = 请输入不带逗号的金额，例如 25 或 1000.50。
shop-amount-range = 请输入 0.01 到 10,000,000.00 之间的金额。
shop-back-to-order = 返回订单
shop-account-ledger = 账户账本
shop-no-entries = 还没有记录。

# 实验室账户。
lab-account = 实验室账户
lab-account-balance = 另有实验室账户余额 { $balance }，只用于支付实验室商品，不能在商店使用。
lab-pay-short = 这是实验室的订单，由你的实验室账户支付。其余额 { $balance }，还差 { $missing }。退掉另一个实验室订单，可以拿回它的价款。
lab-pay-after = 这是实验室的订单，由你的实验室账户支付。其余额 { $balance }，付款后剩 { $after }。
lab-thanks = 已由实验室账户支付。其余额 { $balance }。
lab-refunded = 已退回实验室账户 { $total }，其余额 { $balance }，库存已退回。
lab-no-money-changes = 无。实验室账户余额 { $balance }。


# 密码与会话。
shop-security = 密码与会话
shop-password-changed = 密码已修改，其他会话已结束。
shop-password-old = 当前密码
shop-password-new = 新密码
shop-password-change = 修改密码
shop-password-wrong = 当前密码不正确。
shop-password-rule = { $min } 到 { $max } 个字符
shop-sessions = 会话
shop-sessions-about = 你当前登录的会话，最新的在前。结束的会话会在五秒内失效。
shop-session-began = { $when }登录
shop-session-ends = { $when }到期
shop-session-current = 当前会话
shop-session-end = 结束会话
shop-older-sessions = 更早的会话

# 登录与注册。
shop-name = 用户名
shop-password = 密码
shop-sign-in-wrong = 用户名或密码不正确。
shop-sign-in-disabled = 此账户已停用，请联系店主。
shop-session-ended = 会话已结束，请重新登录后继续。
shop-session-ended-form = 提交表单时会话已经结束，没有做任何修改。请重新登录，你填写的内容还在。
shop-new-here = 还没有账户？
shop-have-account = 已有账户？
shop-welcome = 注册即获 { $credit }，可在本演示商店使用。
shop-name-rule = 1 到 64 个字符：a–z（不区分大小写）、0–9、点、短横线、下划线；以“lab-”开头的名字为保留名
shop-name-taken = 此用户名已被占用，请换一个。

# 账本。
shop-books-sound = 账目相符
shop-books-off = 账目不符
shop-drift = 偏差
shop-oversold = 超卖
shop-breaks = 断链
shop-forks = 分叉
shop-recent-only = 超卖、断链和分叉只统计最近 { $entries } 条记录。
shop-audit-all = 审计整个账本
shop-ledger-about = 最新的在前。每条记录的起始值应等于下方一条的结束值。
shop-ledger-forks-about = 两条记录读到同一版本即为分叉：丢失更新。
shop-ledger-fence-about = 栅栏令牌（fence）是持锁者的编号：越晚获得锁，编号越大。Postgres 拒绝编号较小的写入。Redis 每次授予锁时预留 64 个编号。
shop-ledger-order = 订单
shop-ledger-version = 版本 { $version }
shop-ledger-fence = 栅栏令牌 { $fence }
shop-ledger-request = 请求
shop-ledger-fork = 分叉：读到版本 { $version }，与此相同的还有
shop-ledger-broken = 此处断链：下方一条结束于 { $ended }，本条却从 { $begins } 开始。
shop-ledger-newest = 最新记录
shop-ledger-older = 更早的记录
shop-reason-opening = 期初库存
shop-reason-order = 下单
shop-reason-cancel = 取消
shop-reason-refund = 退款
shop-reason-expiry = 超时未付款
shop-reason-restock = 补货
shop-reason-correction = 盘点更正
shop-reason-damaged = 损坏
shop-reason-payment = 付款
shop-reason-top-up = 充值
shop-reason-welcome = 新用户赠金
shop-delta = 变动数量
shop-delta-unclear = 请输入整数，例如 20 或 −3。
shop-reason = 原因
shop-reason-rule = 请输入一行 1 到 64 个字符。商店自用的原因（order、refund 等）为保留词。
shop-restock = 修改库存
shop-limit-label = 每位顾客限购
shop-limit-rule = 请输入 1 到 { $max }，留空表示不限购。
shop-no-limit = 不限

# 时间。
shop-time-now = 刚刚
shop-ago-minute = { $count } 分钟前
shop-ago-hour = { $count } 小时前
shop-ago-day = { $count } 天前
shop-in-minute = { $count } 分钟后
shop-in-hour = { $count } 小时后
shop-in-day = { $count } 天后

# 接口文档。
shop-api = 接口文档
shop-api-language = 各项说明出自这份文档，只有英文：
shop-api-contents = 目录
shop-api-session = 会话
shop-api-session-needed = 需要：Authorization: Bearer TOKEN
shop-api-session-open = 不需要
shop-api-in-header = 请求头
shop-api-in-query = 查询参数
shop-api-in-path = 路径参数
shop-api-required = 必填
shop-api-body = 请求体
shop-api-problems = 错误
shop-api-schemas = 数据结构
