# 终端里的课程。
terminal-run-one = 运行其中一课：holdfast lesson NAME
terminal-page = 本次运行的全部细节：{ $page }
terminal-queued = 排队中：第 { $place } 位
terminal-sample = { $strategy }：售出 { $sold }，库存 { $stock }，超卖 { $oversold }，等待 { $waiting }
terminal-contradicts = 与结论矛盾
terminal-shown = 已证实：{ $verdict }
terminal-not-shown = 未证实：{ $verdict }
terminal-failed = 运行失败：{ $verdict }
terminal-next = 下一课：holdfast lesson { $name }
terminal-opening = 期初库存
terminal-sound = 账目相符
terminal-not-sound = 账目不符
terminal-more-events = …… 另有 { $count } 个事件，见本次运行的页面
terminal-legend =
    按时间顺序，间隔已缩短：  · 进行中  = 持有锁  - 无锁执行
    w 请求锁，h 获得锁，r 读取，W 写入，c 即将提交，C 已提交，
    R 释放锁，e EXPIRE 之前，d DEL 之前，P 暂停，> 恢复，X 被杀死
